"""What every task of a flow needs: the guard that keeps private values out of Prefect, approval, retries and refusals."""
